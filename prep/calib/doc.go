// Package calib reads calibration text: tokenises it whole, cuts it into windows, and names where a token came from.
package calib
