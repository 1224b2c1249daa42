package edit

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"orrery.dev/api"
)

// mergeBytes bounds three objects, each as large as the API server takes one.
const mergeBytes = 10 << 20

// Handler answers POST on api.MergePath.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := merge(w, r)
		code := http.StatusOK
		if err != nil {
			status := err.Status()
			status.Kind, status.APIVersion = "Status", "v1"
			answer, code = status, int(status.Code)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(answer)
	})
}

func merge(w http.ResponseWriter, r *http.Request) (any, *apierrors.StatusError) {
	if r.Method != http.MethodPost {
		return nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "merge"}, r.Method)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mergeBytes))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	var of api.MergeOf
	if err == nil { // whole numbers stay whole
		err = utiljson.Unmarshal(body, &of)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	merged, conflicts := Merge(of.Base, of.Mine, of.Theirs, of.Choices)
	if conflicts == nil {
		conflicts = []api.Conflict{}
	}
	return api.Merged{Object: merged, Conflicts: conflicts}, nil
}
