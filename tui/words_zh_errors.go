package tui

import (
	"regexp"
	"sync"
)

// knownError is a part of an error, and what takes its place in zh-TW.
type knownError struct {
	is      *regexp.Regexp
	chinese string
}

// knownErrors are those that users see most often, in the words of the API server,
// of the network and of the server of consoles.
var knownErrors = sync.OnceValue(func() (out []knownError) {
	for _, k := range [][2]string{
		{`(?:\S+ )?(?:"[^"]*" )?is forbidden: User "([^"]*)" cannot (\S+) resource "([^"]*)" in API group "[^"]*" in the namespace "([^"]*)"`, `使用者 $1 沒有權限：不能在 Namespace $4 中 $2 $3`},
		{`(?:\S+ )?(?:"[^"]*" )?is forbidden: User "([^"]*)" cannot (\S+) resource "([^"]*)" in API group "[^"]*" at the cluster scope`, `使用者 $1 沒有權限：不能在整個叢集 $2 $3`},
		{`forbidden: User "([^"]*)" cannot (\S+) path "([^"]*)"`, `使用者 $1 沒有權限：不能 $2 路徑 $3`},
		{`^Unauthorized$|the server has asked for the client to provide credentials`, `API 伺服器不認得您：憑證無效或已過期`},
		{`(?:(?:Get|Post|Put|Patch|Delete) "[^"]*": )?dial tcp ([^ ]+): (?:connect: )?connection refused`, `無法連線到 $1：連線遭拒`},
		{`(?:(?:Get|Post|Put|Patch|Delete) "[^"]*": )?dial tcp ([^ ]+): (?:connect: )?no route to host`, `無法連線到 $1：沒有路由`},
		{`(?:(?:Get|Post|Put|Patch|Delete) "[^"]*": )?dial tcp ([^ ]+): (?:i/o timeout|connect: connection timed out)`, `無法連線到 $1：逾時`},
		{`(?:(?:Get|Post|Put|Patch|Delete) "[^"]*": )?dial tcp: lookup (\S+)(?: on \S+)?: no such host`, `找不到主機 $1`},
		{`(?:read|write) tcp \S+->(\S+): (?:read: |write: )?(?:connection reset by peer|broken pipe|use of closed network connection)`, `與 $1 的連線中斷`},
		{`(?:websocket: close 1006 \(abnormal closure\): )?unexpected EOF|^EOF$`, `連線中斷`},
		{`context deadline exceeded(?: \([^)]*\))?|net/http: TLS handshake timeout`, `逾時，沒有回應`},
		{`tls: failed to verify certificate: x509: .*`, `無法信任伺服器的憑證`},
		{`the server could not find the requested resource`, `API 伺服器沒有這種資源`},
		{`(\S+) "([^"]+)" not found`, `找不到 $1 $2`},
		{`(\S+) "([^"]+)" already exists`, `$1 $2 已存在`},
		{`Operation cannot be fulfilled on (\S+) "([^"]+)": the object has been modified; please apply your changes to the latest version and try again`, `$1 $2 已被他人修改，請以最新版本再試一次`},
		{`context "([^"]+)" does not exist|context was not found for specified context: (\S+)`, `沒有名為 $1$2 的 context`},

		{`^the server of the consoles stops$`, `提供主控台的伺服器即將停止`},
		{`^this key was taken out of the console's file, or given to somebody else$`, `此金鑰已自主控台的檔案移除，或改屬他人`},
		{`^the console needs a terminal: ssh -t$`, `主控台需要終端機：請用 ssh -t`},
		{`^the console broke down; its log says more$`, `主控台發生錯誤而結束；詳情請見其日誌`},
		{`^terminals of the type "([^"]*)" are not known here: try (\S+)$`, `這裡不認得類型為 $1 的終端機：請試試 $2`},
	} {
		out = append(out, knownError{regexp.MustCompile(k[0]), k[1]})
	}
	return out
})
