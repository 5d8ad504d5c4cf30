//! The place in a history at which the next read continues.

use recycle::report::event::Event;

/// The place up to which a history was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Cursor {
    /// The number of the newest event that was read.
    pub last_id: i64,
    /// Newer events, the newest first, that were read before a page could not be read. The next check continues with that page.
    pub unfinished: Vec<Event>,
    /// The token of the next page. AWS accepts it for a day (API reference of GetExecutionHistory).
    pub token: Option<String>,
    /// Events per page, as in the call that returned the token.
    pub page: i32,
}

/// A view of a history that is built event by event.
pub(crate) trait View {
    fn cursor(&mut self) -> &mut Cursor;

    /// Adds the next event to the view.
    fn fold(&mut self, event: Event);

    /// Reads an event. An event that was read before changes nothing.
    fn read(&mut self, event: Event) {
        if event.id > self.cursor().last_id {
            self.cursor().last_id = event.id;
            self.fold(event);
        }
    }
}
