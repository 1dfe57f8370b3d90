// Package prepare runs all stages in their order, each skipped when it is up to date.
//
// The order is data: Stages. Imports: the stage packages. Start at Run.
package prepare
