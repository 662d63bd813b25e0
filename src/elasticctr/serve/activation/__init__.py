"""From versions in a repository to the ones that answer: fetched, checked, activated, rolled back."""
