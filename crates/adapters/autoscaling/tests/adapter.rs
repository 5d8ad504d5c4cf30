//! One program of all tests of this adapter: each program is linked for seconds.

mod laws;
mod membership;
