// Package scheduler decides which node each pod runs on: kube-scheduler. It is a
// client-go program; it watches pods and nodes, binds through the API server, and
// never runs anything itself.
//
// The main flow: Run starts the informers (watch.go), which feed the cache
// (cache.go: nodes with their pods) and the queue (queue.go: pods without a
// node). One loop takes a pod off the queue, asks the plugins which nodes can
// take it and how well (attempt.go), assumes it onto the best, and binds it in
// the background (bind.go). A pod that fits nowhere may evict others
// (preempt.go), and waits in the queue until something changes that its refusers
// care about.
package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"orrery.dev/client"
	"orrery.dev/scheduler/plugins"
	"orrery.dev/trace"
)

// Config is what Run needs.
type Config struct {
	Clients kubernetes.Interface
	// Name is the spec.schedulerName of the pods to schedule; "": the default
	// scheduler's.
	Name string
	// LeaderElect makes several instances take turns.
	LeaderElect bool
	Log         *slog.Logger
	// Trace tells of each attempt; nil: nobody is told.
	Trace *trace.Tracer
	// Metrics, if set, gets the scheduler's.
	Metrics prometheus.Registerer
}

// scheduler is one running instance.
type scheduler struct {
	Config
	plugins []plugins.Plugin
	cache   *cache
	queue   *queue
	facts   *facts
	events  record.EventRecorder
	metrics *metrics

	turn    int // where the search for nodes goes on, so that all get their share
	binding sync.WaitGroup
}

// Run schedules until ctx ends, or the lead is lost.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Name == "" {
		cfg.Name = corev1.DefaultSchedulerName
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if !cfg.LeaderElect {
		return run(ctx, cfg)
	}
	return client.Lead(ctx, cfg.Clients, "kube-scheduler", func(ctx context.Context) error { return run(ctx, cfg) })
}

func run(ctx context.Context, cfg Config) error {
	s := &scheduler{
		Config:  cfg,
		plugins: plugins.All(),
		cache:   newCache(),
		events:  client.Events(ctx, cfg.Clients, cfg.Name, ""),
	}
	s.queue = newQueue(s.plugins)
	s.metrics = newMetrics(cfg.Metrics, s.queue)
	stopInformers, err := s.watch(ctx)
	if err != nil {
		return err
	}
	defer stopInformers()
	defer s.binding.Wait()

	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() { s.queue.run(ctx) })
	background.Go(func() { s.cache.expire(ctx) })

	cfg.Log.Info("scheduling", "name", cfg.Name)
	for {
		waiting, pod, err := s.queue.pop(ctx)
		if err != nil {
			return nil // ctx ended
		}
		s.scheduleOne(ctx, waiting, pod)
	}
}

// scheduleOne finds a node for a pod, or says why there is none.
func (s *scheduler) scheduleOne(ctx context.Context, w *waiting, pod *corev1.Pod) {
	if pod.DeletionTimestamp != nil || s.cache.assumed(pod) {
		s.queue.done(w)
		return
	}
	began := time.Now()
	ctx, span := s.Trace.Start(ctx, "schedule", trace.Of("", "pods", pod), attribute.Int("attempt", w.attempts))
	snapshot := s.cache.snapshot(s.facts)
	result := s.attempt(ctx, snapshot, pod)
	s.metrics.thinking.Observe(time.Since(began).Seconds())
	if result.node == nil {
		s.metrics.observe("unschedulable", time.Since(began))
		s.refuse(ctx, w, pod, snapshot, result)
		span.End(errors.New(result.explain()))
		return
	}
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = result.node.Name()
	s.cache.assume(assumed)
	s.queue.done(w)
	span.Set(attribute.String("to.node", result.node.Name()))
	s.binding.Go(func() {
		defer span.End(nil)
		s.bind(ctx, w, assumed, snapshot, result.node, began)
	})
}

// refuse records that a pod fits nowhere: on the pod, as an event, and in the
// queue, after trying to make room for it.
func (s *scheduler) refuse(ctx context.Context, w *waiting, pod *corev1.Pod, snapshot *plugins.Snapshot, result result) {
	message := result.explain()
	nominated := ""
	if ctx.Err() == nil {
		var note string
		var err error
		nominated, note, err = s.preempt(ctx, snapshot, pod, result)
		if err != nil {
			s.Log.Error("preempt", "pod", key(pod), "err", err)
		}
		if note != "" {
			message += " " + note
		}
	}
	// Back into the queue before the status goes out: the update that comes
	// back must find it there.
	s.queue.refuse(w, result.refusers(), nominated)
	s.events.Event(pod, corev1.EventTypeWarning, "FailedScheduling", message)
	if err := s.reportUnschedulable(ctx, pod, message, nominated); err != nil && !errors.Is(err, context.Canceled) {
		s.Log.Error("report unschedulable", "pod", key(pod), "err", err)
	}
	s.Log.Info("unschedulable", "pod", key(pod), "why", message)
}

func key(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }
