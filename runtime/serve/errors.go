package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"neuroprefetcher/format"
	"neuroprefetcher/runtime/sample"
)

// apiError is an error in OpenAI's shape.
type apiError struct {
	status     int
	retryAfter int     // seconds; 0 is none
	Message    string  `json:"message"`
	Type       string  `json:"type"`
	Param      *string `json:"param"`
	Code       *string `json:"code"`
}

func (e *apiError) Error() string { return e.Message }

// badRequest is a 400 about a field, "" for the request as a whole.
func badRequest(param, f string, a ...any) *apiError {
	e := &apiError{status: http.StatusBadRequest, Message: fmt.Sprintf(f, a...), Type: "invalid_request_error"}
	if param != "" {
		e.Param = &param
	}
	return e
}

func failure(status int, kind, code, f string, a ...any) *apiError {
	return &apiError{status: status, Message: fmt.Sprintf(f, a...), Type: kind, Code: &code}
}

var errGone = &apiError{status: 499, Message: "the client has gone", Type: "invalid_request_error"}
var errStopping = failure(http.StatusServiceUnavailable, "server_error", "shutting_down", "the server is shutting down")

// toAPI turns an error of the engine into one of the API.
func toAPI(err error) *apiError {
	var api *apiError
	switch {
	case errors.As(err, &api):
		return api
	case errors.Is(err, context.Canceled):
		return errGone
	case errors.Is(err, sample.ErrNonFinite):
		return failure(http.StatusInternalServerError, "server_error", "non_finite_scores", "the model's scores are not finite: %v", err)
	case errors.Is(err, format.ErrInput):
		return badRequest("", "%v", err)
	}
	return failure(http.StatusInternalServerError, "server_error", "engine_failed", "%v", err)
}

// writeError answers with an error; nothing may have been written before.
func writeError(w http.ResponseWriter, e *apiError) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if e.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(e.retryAfter))
	}
	if e.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(e.status)
	b, _ := json.Marshal(map[string]*apiError{"error": e})
	w.Write(append(b, '\n'))
}

func writeJSON(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		writeError(w, failure(http.StatusInternalServerError, "server_error", "encoding", "%v", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(b, '\n'))
}
