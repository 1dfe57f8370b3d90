// Package stage holds the rules that all offline stages share, so that a stage is only its own work.
//
// A stage runs in its own folder, Work/<name>, through Run:
//   - a key, the hash of the stage's name and version, its parameters and the content of its inputs, decides
//     whether there is anything to do; outputs are trusted by their recorded SHA-256 only;
//   - what an interrupted run with the same key left in the folder is kept, so a stage may leave finished units
//     and go on from them; another key empties the folder first;
//   - one process at a time works in a work folder (flock);
//   - stage.json, written last and atomically, is what makes a stage done;
//   - a shard of a stage's work (shard.go) runs as a stage of its own, in Work/<name>.<I>of<N>; a run of the whole puts
//     the shards together that it finds;
//   - every run ends with a Report; report.json in the work folder has those of the whole run.
//
// Files whose names begin with a dot are the stage's own notes (unit checksums, partial files): they are no
// outputs and are removed when the stage is done.
//
// Imports: format, kernels. No stage package imports another; the order is prep/prepare's.
// Start at Run.
package stage
