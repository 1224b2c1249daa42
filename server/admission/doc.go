// Package admission decides whether a write may be stored, and completes it.
//
// chain.go has the contract (Request, Plugin, Chain), all.go lists the plugins
// in running order, and each plugin has a file of its own: a function that
// returns a Plugin. A verb runs Chain.Mutate, then validation, then
// Chain.Validate, then stores, and tells by Request.Finish how it ended.
//
// Which plugins run is the administrator's choice (config.go), who may also
// configure some; optional.go and optional_pods.go have small ones that only run if
// they are asked for.
//
// Webhooks (webhooks.go) are matched by webhook_match.go and called by
// webhook_call.go. Validating policies (policies.go) are matched in the same way;
// their expressions are compiled in policy_programs.go.
//
// Plugins read the cluster through a Reader and keep nothing in memory. Two
// keep books: service addresses (service_addresses.go over service_ips.go and
// service_ports.go; service_repair.go mends what a crash leaves) and quotas
// (quota.go over quota_usage.go).
package admission
