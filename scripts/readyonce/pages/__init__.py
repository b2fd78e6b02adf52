"""What is generated for pages: a class for each kind of page, a method for each part, templates beside them."""
