package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	upstream "k8s.io/apiserver/pkg/admission"
	admissionmetrics "k8s.io/apiserver/pkg/admission/metrics"
)

// PatchAnnotation is the prefix of the audit annotations that hold patches. They
// are for events that hold the request's object too.
const PatchAnnotation = "patch.webhook.admission.k8s.io/"

// called is a call of a webhook, of which audit and metrics are told.
type called struct {
	hook
	r     *Request
	phase string // admit or validating
	place string // round_0_index_1
	began time.Time
}

// hookNote is what annotations tell of a call that may have changed the object.
type hookNote struct {
	Configuration string `json:"configuration"`
	Webhook       string `json:"webhook"`
	Mutated       *bool  `json:"mutated,omitempty"`
	Patch         any    `json:"patch,omitempty"`
	PatchType     string `json:"patchType,omitempty"`
}

func (c called) note(prefix string, m hookNote) {
	m.Configuration, m.Webhook = c.config, c.name
	if value, err := json.Marshal(m); err == nil {
		c.r.annotate(prefix+c.place, string(value))
	}
}

// mutated tells whether the object has changed, and by which patch.
func (c called) mutated(changed bool, patch []byte) {
	var operations []map[string]json.RawMessage
	if json.Unmarshal(patch, &operations) == nil && len(operations) > 0 {
		c.note(PatchAnnotation, hookNote{Patch: operations, PatchType: string(admissionv1.PatchTypeJSONPatch)})
	}
	c.note("mutation.webhook.admission.k8s.io/", hookNote{Mutated: &changed})
}

// outcome turns a webhook's answer, or its failure, into admission's.
func (c called) outcome(ctx context.Context, answer *answer, err error) error {
	var refusal *apierrors.StatusError
	switch {
	case errors.As(err, &refusal):
		c.observe(ctx, true, 0, admissionmetrics.WebhookRejectionAPIServerInternalError)
		return err
	case err != nil && c.failOpen:
		c.observe(ctx, false, http.StatusServiceUnavailable, "")
		slog.Warn("webhook failed and is ignored", "webhook", c.name, "err", err)
		if !errors.Is(err, context.Canceled) {
			admissionmetrics.Metrics.ObserveWebhookFailOpen(ctx, c.name, c.phase)
			c.r.annotate(map[string]string{"admit": "failed-open.mutation", "validating": "failed-open.validating"}[c.phase]+".webhook.admission.k8s.io/"+c.place, c.name)
		}
		if c.phase == "admit" && ctx.Err() != nil {
			return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
		}
		return nil
	case err != nil:
		c.observe(ctx, true, http.StatusServiceUnavailable, admissionmetrics.WebhookRejectionCallingWebhookError)
		return apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: %w", c.name, err))
	case answer == nil || answer.Allowed:
		c.observe(ctx, false, http.StatusOK, "")
		return nil
	}
	denied := c.denied(answer.Result)
	c.observe(ctx, true, int(statusCode(denied)), admissionmetrics.WebhookRejectionNoError)
	return denied
}

func statusCode(err error) int32 {
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		return status.ErrStatus.Code
	}
	return 0
}

// operation is all that the library's metrics want to know of a request.
type operation struct {
	upstream.Attributes
	of Operation
}

// GetOperation implements admission.Attributes.
func (o operation) GetOperation() upstream.Operation { return upstream.Operation(o.of) }

func (c called) observe(ctx context.Context, rejected bool, code int, why admissionmetrics.WebhookRejectionErrorType) {
	m := admissionmetrics.Metrics
	if rejected {
		m.ObserveWebhookRejection(ctx, c.name, c.phase, string(c.r.Operation), why, code)
	}
	m.ObserveWebhook(ctx, c.name, time.Since(c.began), rejected, operation{of: c.r.Operation}, c.phase, code)
}
