//! A history that is read on from where it was read last.

use recycle::report::event::Event;

/// How far a history was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Cursor {
    /// The number of the newest event that was read.
    pub last_id: i64,
    /// Events that are newer, the newest first: they were read before a page could not be. The next look reads on there.
    pub unfinished: Vec<Event>,
    /// Of the next page. It may be asked for within a day (API reference of GetExecutionHistory).
    pub token: Option<String>,
    /// Events of a page, as the token was given for.
    pub page: i32,
}

/// What is made of a history, event by event.
pub(crate) trait View {
    fn cursor(&mut self) -> &mut Cursor;

    /// Takes in the next event.
    fn fold(&mut self, event: Event);

    /// Reads on. Events that were read before change nothing.
    fn read(&mut self, event: Event) {
        if event.id > self.cursor().last_id {
            self.cursor().last_id = event.id;
            self.fold(event);
        }
    }
}
