package eval

import "strings"

// Newlines makes every line end a \n, as Python does when it reads a text file; published figures rest on that.
var Newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")
