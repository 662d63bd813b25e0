"""From a trained run to a version in a repository (elasticctr.versions). Needs torch."""
