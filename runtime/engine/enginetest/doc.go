// Package enginetest makes small bundles for tests of what stands on the engine: Tiny packs the repository's tiny model,
// a Rig is a model whose greedy text is whatever the test says.
//
// It is imported by tests only, and may import format/... , kernels and runtime/model.
package enginetest
