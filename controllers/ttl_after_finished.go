package controllers

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newTTLAfterFinished deletes Jobs some time after they have ended.
func newTTLAfterFinished(e *env) Controller {
	informer := e.factory.Batch().V1().Jobs().Informer()
	return Controller{
		Name:    "ttl-after-finished-controller",
		Reads:   []Source{wakesSelf(informer)},
		Writes:  []string{"batch/jobs"},
		Workers: 5,
		Sync: func(ctx context.Context, key string) (time.Duration, error) {
			job := cached[batchv1.Job](informer, key)
			if left, due := jobTTL(job, time.Now()); !due {
				return left, nil
			}
			// The time to live may just have been prolonged.
			fresh, err := e.clients.BatchV1().Jobs(job.Namespace).Get(ctx, job.Name, metav1.GetOptions{})
			if err != nil {
				return 0, ignoreNotFound(err)
			}
			if left, due := jobTTL(fresh, time.Now()); !due {
				return left, nil
			}
			foreground := metav1.DeletePropagationForeground
			err = e.clients.BatchV1().Jobs(job.Namespace).Delete(ctx, job.Name, metav1.DeleteOptions{PropagationPolicy: &foreground, Preconditions: sameObject(fresh)})
			if ignoreGone(err) != nil {
				return 0, fmt.Errorf("delete finished job: %w", err)
			}
			return 0, nil
		},
	}
}

// jobTTL says whether a Job is due to be deleted, or else when.
func jobTTL(job *batchv1.Job, now time.Time) (left time.Duration, due bool) {
	if job == nil || job.DeletionTimestamp != nil || job.Spec.TTLSecondsAfterFinished == nil {
		return 0, false
	}
	c := jobFinished(job)
	if c == nil {
		return 0, false
	}
	left = c.LastTransitionTime.Add(time.Duration(*job.Spec.TTLSecondsAfterFinished) * time.Second).Sub(now)
	return left, left <= 0
}
