"""Values as text, as JSON documents, and as a page. Pure: nothing here prints."""
