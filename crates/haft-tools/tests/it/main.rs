//! Tools against the world they are for.

// Real descriptions of large APIs, and requests judged by somebody else.
mod specs;
// MCP servers that are reached in a way of the program's own.
mod own_transport;
// Arguments made up from a schema.
mod made_up;
