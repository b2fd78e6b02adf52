"""What leaves the project: the site, the book, the API, the feed, the data of a wheel."""
