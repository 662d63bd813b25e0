"""The cube agent: runs beside one server, fetches and checks versions, and has it load and activate them."""
