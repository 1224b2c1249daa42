// Package web is the dashboard: the embedded page (its source is in app), sign-in
// and sessions, and the requests that a page makes on behalf of its user.
//
// Everything is below /ui/. The page is static (page.go). Signing in (session.go)
// takes a bearer token, has the API server say whose it is, and gives the browser
// a cookie with the token sealed inside: the page's scripts never see a token
// again, and no state is kept here, so any API server of the cluster can answer
// the next request. A request below /ui/k8s/ (forward.go) is given to the API
// server's own handler in the same process, with the token in place of the
// cookie: authentication, authorisation and audit are the API server's as for
// any client, and upgrades (exec, the row stream) pass through.
//
// What a browser could be tricked into sending is refused by where it comes from
// (origin.go), on top of the cookie's SameSite.
package web
