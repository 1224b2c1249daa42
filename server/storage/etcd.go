package storage

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// Etcd is the Backend that counts: an etcd cluster behind a client, be it
// remote or in this process (v3client).
type Etcd struct {
	client *clientv3.Client
}

// NewEtcd makes a Backend of a client, which stays the caller's to close.
func NewEtcd(client *clientv3.Client) *Etcd { return &Etcd{client: client} }

// revisionKey is never written; reading it tells the revision. It is the one
// that upstream's health check reads, so that etcd users with rights on the
// prefix only can do it.
const revisionKey = "/registry/health"

// Get reads one key.
func (e *Etcd) Get(ctx context.Context, key string) (*KV, int64, error) {
	resp, err := e.client.Get(ctx, key)
	if err != nil {
		return nil, 0, etcdError(err)
	}
	if len(resp.Kvs) == 0 {
		return nil, resp.Header.Revision, nil
	}
	kv := fromEtcd(resp.Kvs[0])
	return &kv, resp.Header.Revision, nil
}

// List reads a range.
func (e *Etcd) List(ctx context.Context, start, end string, revision, limit int64) (Range, error) {
	resp, err := e.client.Get(ctx, start, clientv3.WithRange(end), clientv3.WithRev(revision), clientv3.WithLimit(limit))
	if err != nil {
		return Range{}, etcdError(err)
	}
	r := Range{Count: resp.Count, Revision: revision, KVs: make([]KV, len(resp.Kvs))}
	if revision == 0 {
		r.Revision = resp.Header.Revision
	}
	for i, kv := range resp.Kvs {
		r.KVs[i] = fromEtcd(kv)
	}
	return r, nil
}

// Put writes a key if it is unchanged.
func (e *Etcd) Put(ctx context.Context, key string, value []byte, guard, lease int64) (Outcome, error) {
	return e.write(ctx, key, guard, clientv3.OpPut(key, string(value), clientv3.WithLease(clientv3.LeaseID(lease))))
}

// Delete removes a key if it is unchanged.
func (e *Etcd) Delete(ctx context.Context, key string, guard int64) (Outcome, error) {
	return e.write(ctx, key, guard, clientv3.OpDelete(key))
}

func (e *Etcd) write(ctx context.Context, key string, guard int64, op clientv3.Op) (Outcome, error) {
	resp, err := e.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", guard)).
		Then(op).
		Else(clientv3.OpGet(key)).
		Commit()
	if err != nil {
		return Outcome{}, etcdError(err)
	}
	if resp.Succeeded {
		return Outcome{Done: true, Revision: resp.Header.Revision}, nil
	}
	var out Outcome
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		kv := fromEtcd(kvs[0])
		out.Current = &kv
	}
	return out, nil
}

// Watch follows a prefix.
func (e *Etcd) Watch(ctx context.Context, prefix string, from int64, sink func([]Change, int64)) error {
	ctx, cancel := context.WithCancel(watchStream(ctx, "storage"))
	defer cancel()
	for resp := range e.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if err := resp.Err(); err != nil {
			return etcdError(err)
		}
		if resp.IsProgressNotify() {
			sink(nil, resp.Header.Revision)
			continue
		}
		if len(resp.Events) == 0 {
			continue
		}
		changes := make([]Change, len(resp.Events))
		for i, ev := range resp.Events {
			changes[i] = Change{KV: fromEtcd(ev.Kv), Deleted: ev.Type == clientv3.EventTypeDelete}
		}
		// The header's revision may be ahead of the events when the watch is
		// catching up; the last event's is always true.
		sink(changes, changes[len(changes)-1].Mod)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.New("etcd closed the watch")
}

// RequestProgress asks for a progress notification of our watch.
func (e *Etcd) RequestProgress(ctx context.Context) error {
	return etcdError(e.client.RequestProgress(watchStream(ctx, "storage")))
}

// watchStream sets our watches apart from others of the same client: etcd
// answers a progress request only when all watches of a stream are caught up.
// It also makes a member that has lost its leader end the watch.
func watchStream(ctx context.Context, name string) context.Context {
	return clientv3.WithRequireLeader(metadata.AppendToOutgoingContext(ctx, "stream", name))
}

// progressInterval is how often a reader of the past asks whether it is at the
// end. Etcd answers no sooner than the watch has caught up.
const progressInterval = 20 * time.Millisecond

// History reads the past with a watch of its own.
func (e *Etcd) History(ctx context.Context, prefix string, from, to int64, limit int) (all []Past, err error) {
	ctx, cancel := context.WithCancel(watchStream(ctx, "history"))
	defer cancel()
	watch := e.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(from), clientv3.WithPrevKV())
	ask := time.NewTicker(progressInterval)
	defer ask.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ask.C:
			if err := e.client.RequestProgress(ctx); err != nil {
				return nil, etcdError(err)
			}
		case resp, ok := <-watch:
			if !ok {
				return nil, errors.New("etcd closed the watch")
			}
			if err := resp.Err(); err != nil {
				return nil, etcdError(err)
			}
			if resp.IsProgressNotify() && resp.Header.Revision >= to {
				return all, nil
			}
			for _, ev := range resp.Events {
				if ev.Kv.ModRevision > to {
					return all, nil
				}
				p := Past{Change: Change{KV: fromEtcd(ev.Kv), Deleted: ev.Type == clientv3.EventTypeDelete}}
				if ev.PrevKv != nil {
					prev := fromEtcd(ev.PrevKv)
					p.Prev = &prev
				}
				if len(all) == limit || p.Prev == nil && !ev.IsCreate() {
					return nil, ErrCompacted
				}
				all = append(all, p)
			}
		}
	}
}

// Size is that of etcd's database file.
func (e *Etcd) Size(ctx context.Context) (int64, error) {
	endpoint := "" // of a client inside etcd's process
	if all := e.client.Endpoints(); len(all) > 0 {
		endpoint = all[0]
	}
	status, err := e.client.Status(ctx, endpoint)
	if err != nil {
		return 0, etcdError(err)
	}
	return status.DbSize, nil
}

// Revision is the current revision.
func (e *Etcd) Revision(ctx context.Context) (int64, error) {
	resp, err := e.client.Get(ctx, revisionKey, clientv3.WithCountOnly())
	if err != nil {
		return 0, etcdError(err)
	}
	return resp.Header.Revision, nil
}

// Compact forgets the past.
func (e *Etcd) Compact(ctx context.Context, revision int64) error {
	_, err := e.client.Compact(ctx, revision)
	return etcdError(err)
}

// Grant makes a lease.
func (e *Etcd) Grant(ctx context.Context, ttl time.Duration) (int64, error) {
	resp, err := e.client.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
	if err != nil {
		return 0, etcdError(err)
	}
	return int64(resp.ID), nil
}

func fromEtcd(kv *mvccpb.KeyValue) KV {
	return KV{Key: string(kv.Key), Value: kv.Value, Create: kv.CreateRevision, Mod: kv.ModRevision}
}

func etcdError(err error) error {
	if err == nil {
		return nil
	}
	switch rpctypes.Error(err) {
	case rpctypes.ErrCompacted:
		return ErrCompacted
	case rpctypes.ErrFutureRev:
		return ErrFuture
	}
	return err // it says itself whose it is
}
