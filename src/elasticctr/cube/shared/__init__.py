"""What cube agents and transfers share beyond elasticctr.net: checked names and directory listings. No policy."""
