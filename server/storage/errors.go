package storage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The words of these errors are upstream's: clients match on some of them.
const (
	msgModified      = "the object has been modified; please apply your changes to the latest version and try again"
	msgListExpired   = "The resourceVersion for the provided list is too old."
	msgContinueMixed = "The provided continue parameter is too old to display a consistent list result. " +
		"You can start a new list without the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - " +
		"objects that were created, modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list."
)

// errUnsynced says that the cache cannot answer for now; etcd may.
var errUnsynced = errors.New("the cache is behind")

// errVersionOnCreate is what upstream says to a new object with a
// resourceVersion.
var errVersionOnCreate = errors.New("resourceVersion should not be set on objects to be created")

// parseVersion reads a resourceVersion: 0 for "" and "0".
func parseVersion(rv string) (int64, error) {
	if rv == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(rv, 10, 63)
	if err != nil {
		return 0, field.Invalid(field.NewPath("resourceVersion"), rv, err.Error())
	}
	return int64(n), nil
}

func errTooLarge(wanted, current int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", wanted, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}

func errTooOld(wanted, oldest int64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", wanted, oldest))
}

func errConflict(gr schema.GroupResource, name string) error {
	return apierrors.NewConflict(gr, name, errors.New(msgModified))
}

// checkPreconditions compares what a client said about the object's identity.
func checkPreconditions(gr schema.GroupResource, key string, p *metav1.Preconditions, i *Item) error {
	if p == nil {
		return nil
	}
	var msg string
	switch {
	case p.UID != nil && *p.UID != i.UID:
		msg = fmt.Sprintf("Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, i.UID)
	case p.ResourceVersion != nil && *p.ResourceVersion != strconv.FormatInt(i.Revision, 10):
		msg = fmt.Sprintf("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", *p.ResourceVersion, i.Revision)
	default:
		return nil
	}
	return errUnfit(gr, key, i.Name, msg)
}

// errUnfit is for an object that is not as the request needs it to be.
func errUnfit(gr schema.GroupResource, key, name, why string) error {
	return apierrors.NewConflict(gr, name, fmt.Errorf(
		"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %s", key, why))
}

// errCorrupt is the answer for an object whose stored bytes cannot be read.
func errCorrupt(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
		Reason: metav1.StatusReasonStoreReadError, Message: err.Error(),
	}}
}

// backendError turns what etcd says into what a client should hear: try again
// when etcd is out of reach, and else its own words, as upstream's clients know them.
func backendError(gr schema.GroupResource, verb string, err error) error {
	var known *apierrors.StatusError
	if err == nil || errors.As(err, &known) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return apierrors.NewTimeoutError(fmt.Sprintf("request did not complete within requested timeout - %v", context.DeadlineExceeded), 0)
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if c := status.Code(e); c == codes.Unavailable || c == codes.DeadlineExceeded {
			return apierrors.NewServerTimeout(gr, verb, 2)
		}
	}
	return err
}
