// Package serve answers OpenAI-shaped requests over HTTP from one engine, and serves a page to look at it with.
//
// Requests are checked whole before they queue: fields in request.go, prompts in prompt.go. A field that is not done here
// is a 400 that names it. One goroutine, the worker (worker.go), owns the engine and takes requests in order; what it
// generates goes through a mailbox to the goroutine of the request, so that a slow reader never holds the engine up.
//
//	api.go            routes and handlers          completion.go, chat.go   the two shapes of answers
//	answer.go         one answer, token by token   stop.go, logprob.go      stop strings; log-probabilities
//	queue.go          who waits                    guard.go                 keys, origins, hosts, connections
//	stats.go          /stats, /metrics             page.go, page.html       the page
//
// A request goes on from what the key-value cache holds of its prompt. In sparse mode the cached keys and values of an
// earlier answer are those of its sparse steps, where a fresh prompt would run through whole layers: the same conversation
// can go on in other words. cache_prompt: false, an addition to OpenAI's fields like top_k, min_p, repetition_penalty and
// ignore_eos, starts afresh.
//
// With echo and logprobs the token that ends a text is listed too, with its log-probability and no text: clients that score
// endings ask for one token behind the prompt and count on the list being one longer than it.
//
// Invariants: the engine is touched by the worker alone; a client that leaves stops its work within a layer; text that
// is streamed joins to the text that is not; a log-probability that is not finite is sent as null; nothing of a prompt
// is logged.
//
// It may import runtime/... and format. Start at New (server.go).
package serve
