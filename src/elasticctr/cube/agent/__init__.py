"""The cube agent: beside one server, it fetches and checks versions and has them loaded and activated."""
