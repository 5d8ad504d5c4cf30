//! One program of all tests of this adapter: each program is linked for seconds.

mod access;
mod devices;
mod events;
mod hostile_objects;
mod keep;
mod laws;
mod leases;
mod marks;
mod nodes;
mod pods;
mod request;
mod volumes;
