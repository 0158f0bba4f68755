"""Values as text: what a column of Arrow looks like in a CSV file, in lines of JSON, as SQL, for LOAD DATA, on a
screen."""
