package why

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/api"
)

// askedBytes bounds the list of objects that are asked about.
const askedBytes = 8 << 20

// Handler answers GET on api.WhyPath and api.RightsPath, and POST on api.BlastPath.
// reader gives the Reader of the request's user.
func Handler(reader func(*http.Request) Reader) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := ask(reader(r), w, r)
		code := http.StatusOK
		if err != nil {
			status := statusOf(err)
			answer, code = status, int(status.Code)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(answer)
	})
}

func ask(reader Reader, w http.ResponseWriter, r *http.Request) (any, error) {
	if r.URL.Path == api.BlastPath && r.Method == http.MethodPost {
		var of api.BlastOf
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, askedBytes)).Decode(&of); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return Blast(reader, of, time.Now())
	}
	if r.URL.Path == api.BlastPath || r.Method != http.MethodGet {
		return nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "why"}, r.Method)
	}
	q := r.URL.Query()
	if r.URL.Path == api.RightsPath {
		return askRights(reader, q)
	}
	if q.Get("name") == "" {
		return Find(reader, q["namespace"], time.Now())
	}
	return Explain(reader, api.ObjectRef{Group: q.Get("group"), Resource: q.Get("resource"), Namespace: q.Get("namespace"), Name: q.Get("name")}, time.Now())
}

func statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	return &status
}
