"""What cube agents and transfers share beyond elasticctr.control: checked names and directory listings. No policy."""
