//! A history that was read in part.

/// The pages of a history, from its newest on, that were read before one could not be: the next look reads on there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unfinished<E> {
    /// The newest first.
    pub(crate) events: Vec<E>,
    /// Of the next page. It may be asked for within a day (API reference of GetExecutionHistory).
    pub(crate) token: Option<String>,
    /// Events of a page, as the token was given for.
    pub(crate) size: i32,
}

impl<E> Default for Unfinished<E> {
    fn default() -> Self {
        Self {
            events: Vec::new(),
            token: None,
            size: 0,
        }
    }
}
