// Package tune measures a bundle's selectors on calibration text and gives the bundle what was found: how good each selector
// is, by which `auto` takes the best, and the means that stand in for neurons that are left out, where they help.
//
// It publishes the bundle, measures it as it would run on a device, and publishes it again. It may import prep/ladder,
// prep/bundle, prep/calib, prep/stage, format/... . Start at Run.
package tune
