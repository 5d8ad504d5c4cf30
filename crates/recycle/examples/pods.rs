//! Prints the page about pods with the table of the rules: `docs/pods.md`.
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

fn main() -> std::io::Result<()> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pods.md");
    let page = std::fs::read_to_string(page)?;
    print!("{}", recycle::reference::pods::with_rules(&page));
    Ok(())
}
