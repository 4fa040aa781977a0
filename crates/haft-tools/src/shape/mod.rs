//! Providers around providers: what is shown of one is changed, what it does is not.

mod described;

pub use described::Described;
