// Package web is the dashboard: the embedded page (its source is in app), sign-in
// and sessions, and the requests that a page makes on behalf of its user.
package web
