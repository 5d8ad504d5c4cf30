//! Prints the page about notifications: `docs/notifications.md`.
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

fn main() {
    print!("{}", recycle::reference::tables::render_notifications());
}
