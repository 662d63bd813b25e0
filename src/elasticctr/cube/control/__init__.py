"""What cube agents and transfers share: checked names, atomic files, directory listings, HTTP both ways. No policy."""
