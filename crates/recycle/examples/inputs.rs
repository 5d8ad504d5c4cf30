//! Prints the README's tables of inputs and outcomes in Markdown.
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

fn main() {
    print!("{}", recycle::tables::render_tables());
}
