// Package text reads calibration text: joins the files, tokenises the whole at once, cuts it into windows, and names
// the file that a token came from. It may import format/..., runtime/tokenizer and prep/calib. Start at Load.
package text
