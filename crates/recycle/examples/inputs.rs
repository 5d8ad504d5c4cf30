//! Prints the page of inputs and outcomes: `docs/inputs-and-outcomes.md`.
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

fn main() {
    print!("{}", recycle::reference::tables::render_page());
}
