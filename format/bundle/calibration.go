package bundle

import "strings"

// calibrationText is the parameter with the SHA-256 of the text that the bundle was calibrated on.
const calibrationText = "calibration_text_sha256"

// CalibratedOn tells whether the bundle was calibrated on the text with this SHA-256, so that a measurement on it says
// little about other text.
func (m *Manifest) CalibratedOn(sha256 string) bool {
	return sha256 != "" && strings.EqualFold(m.Params[calibrationText], sha256)
}
