//! Tools against the world they are for.

// Real descriptions of large APIs, and requests judged by somebody else.
mod specs;
// Arguments made up from a schema.
mod made_up;
