//! Integration tests of the tools.

// Imports real OpenAPI documents of large APIs; independent libraries validate the requests.
mod specs;
// MCP servers over a custom transport.
mod own_transport;
// Arguments generated from a schema.
mod generated_arguments;
