package page

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"

	"github.com/fenced/fenced/internal/api"
)

//go:embed assets
var assets embed.FS

// Bounds of the server. Any user of the machine can reach the port.
const (
	maxConnections = 64
	maxStreams     = 16
	maxHeader      = 16 << 10
	headerTime     = 10 * time.Second
	writeTime      = 30 * time.Second
	aliveTime      = 15 * time.Second // how often a silent stream says that it lives
	endTime        = 2 * time.Second  // for what is open at the end
)

// server answers the browser. Whoever has the cookie may read; a token gives the cookie, once.
//
// A browser sends a cookie to every port of a host. So the cookie is for a path that nobody else knows: a server of another
// user of this machine, on another port, is not sent it.
type server struct {
	hub    *hub
	host   string // 127.0.0.1:PORT, and nothing else is answered
	path   string // /RANDOM/
	cookie string // its name has the port: two pages in one browser
	secret [sha256.Size]byte
	value  string

	mu    sync.Mutex
	token [sha256.Size]byte
	valid bool // the token was not used yet

	streams atomic.Int32
	ended   <-chan struct{}
}

// Serve serves the page on a port of 127.0.0.1 that the kernel chooses, until ctx is done: then it returns nil. It calls
// started with the address to open, which works once. It returns the daemon's error when that refuses the caller. cluster
// names the only one that is shown; empty means all.
func Serve(ctx context.Context, client *api.Client, cluster string, started func(address string) error) error {
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	if _, err := client.Status(ctx); err != nil {
		return err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen on 127.0.0.1: %w", err)
	}
	s, token := newServer(newHub(client, cluster, refuse), ln.Addr().String(), ctx.Done())
	web := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTime, ReadTimeout: headerTime, WriteTimeout: writeTime, IdleTimeout: time.Minute, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(io.Discard, "", 0), // what a stranger sends is nobody's news
	}
	var work sync.WaitGroup
	work.Go(func() { s.hub.listen(ctx) })
	work.Go(func() { s.hub.run(ctx) })
	work.Go(func() {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.Background(), endTime)
		defer cancel()
		if web.Shutdown(end) != nil {
			_ = web.Close()
		}
	})
	err = started("http://" + s.host + "/?token=" + token)
	if err == nil {
		err = web.Serve(netutil.LimitListener(ln, maxConnections))
	}
	why := context.Cause(ctx)
	refuse(nil)
	work.Wait()
	switch {
	case errors.Is(err, http.ErrServerClosed):
		if _, refused := errors.AsType[*api.Error](why); refused {
			return why
		}
		return nil
	default:
		_ = ln.Close()
		return fmt.Errorf("serve the page: %w", err)
	}
}

func newServer(h *hub, host string, ended <-chan struct{}) (s *server, token string) {
	_, port, _ := net.SplitHostPort(host)
	token, value := random(), random()
	return &server{hub: h, host: host, path: "/" + hex.EncodeToString(randomBytes()[:16]) + "/", cookie: "fencectl-" + port, value: value,
		secret: sha256.Sum256([]byte(value)), token: sha256.Sum256([]byte(token)), valid: true, ended: ended}, token
}

func randomBytes() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return b
}

func random() string { return base64.RawURLEncoding.EncodeToString(randomBytes()) }

// headers are those of every answer.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Embedder-Policy": "require-corp",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=()",
	"Cache-Control":                "no-store",
}

// ServeHTTP answers one request.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	if refusal, status := s.refusal(r); refusal != "" {
		http.Error(w, refusal, status)
		return
	}
	if r.URL.Path == "/" && r.URL.Query().Has("token") {
		s.exchange(w, r)
		return
	}
	if !s.knows(r) {
		http.Error(w, "No entry. The address that fencectl ui prints works once, in the browser that opens it first. Start fencectl ui again for another.", http.StatusForbidden)
		return
	}
	s.serve(w, r)
}

// refusal is why a request is not even looked at: another name in Host is DNS rebinding; another origin is a page of
// somebody else in the same browser.
func (s *server) refusal(r *http.Request) (string, int) {
	site := r.Header.Get("Sec-Fetch-Site")
	origin := r.Header.Get("Origin")
	switch {
	case r.Host != s.host:
		return "The page is at http://" + s.host + " only.", http.StatusForbidden
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return "The page is read-only.", http.StatusMethodNotAllowed
	case origin != "" && origin != "http://"+s.host, site != "" && site != "same-origin" && site != "none":
		return "Another page may not read this one. Open its address yourself.", http.StatusForbidden
	}
	return "", 0
}

// exchange gives the cookie for the token, once.
func (s *server) exchange(w http.ResponseWriter, r *http.Request) {
	given := sha256.Sum256([]byte(r.URL.Query().Get("token")))
	s.mu.Lock()
	good := r.Method == http.MethodGet && s.valid && subtle.ConstantTimeCompare(given[:], s.token[:]) == 1
	if good {
		s.valid = false
	}
	s.mu.Unlock()
	if !good {
		http.Error(w, "The address works once. Start fencectl ui again for another.", http.StatusForbidden)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: s.cookie, Value: s.value, Path: s.path, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, s.path, http.StatusSeeOther)
}

// knows reports whether the request has the cookie.
func (s *server) knows(r *http.Request) bool {
	c, err := r.Cookie(s.cookie)
	if err != nil {
		return false
	}
	given := sha256.Sum256([]byte(c.Value))
	return subtle.ConstantTimeCompare(given[:], s.secret[:]) == 1
}

// kinds are the types of the files.
var kinds = map[string]string{"style.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	name, below := strings.CutPrefix(r.URL.Path, s.path)
	if kind := kinds[name]; below && kind != "" {
		w.Header().Set("Content-Type", kind)
		http.ServeFileFS(w, r, assets, "assets/"+name)
		return
	}
	p, ok := placeOf(name, r.URL.Query())
	if !below || !ok {
		http.Error(w, "There is no such page.", http.StatusNotFound)
		return
	}
	if strings.HasPrefix(name, "live/") && r.Method == http.MethodHead {
		http.Error(w, "", http.StatusMethodNotAllowed)
		return
	}
	if strings.HasPrefix(name, "live/") {
		s.stream(w, r, p)
		return
	}
	s.page(w, r, p)
}

// placeOf is what an address means. Names have the syntax of names, so nothing else reaches the daemon.
func placeOf(name string, q url.Values) (p place, ok bool) {
	name = strings.TrimPrefix(name, "live/")
	p = place{kind: name, cluster: q.Get("cluster")}
	if p.cluster != "" && api.CheckCluster(p.cluster) != nil {
		return p, false
	}
	switch {
	case name == "":
		return place{kind: "overview"}, true
	case name == "run":
		p.name = q.Get("id")
		return place{kind: "run", name: p.name}, api.CheckTarget(p.name) == nil
	case name == "node" && q.Has("machine"):
		p.kind, p.name = "machine", q.Get("machine")
		return p, api.CheckMachine(p.name) == nil
	case name == "node":
		p.name = q.Get("node")
		return p, api.CheckNode(p.name) == nil
	}
	return p, false
}

// address is the path of a place, with its query.
func (p place) address() string {
	q := url.Values{}
	switch p.kind {
	case "overview":
		return ""
	case "run":
		q.Set("id", p.name)
		return "run?" + q.Encode()
	}
	q.Set(p.kind, p.name)
	if p.cluster != "" {
		q.Set("cluster", p.cluster)
	}
	return "node?" + q.Encode()
}

func (s *server) page(w http.ResponseWriter, r *http.Request, p place) {
	v, err := s.hub.look(r.Context(), p)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // a fenced that hangs may have taken longer already
	if err != nil {
		http.Error(w, "The page cannot be drawn: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	link, main := v.whole()
	now := time.Now()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(v.status)
	_ = writeLayout(w, layout{Title: v.title, Made: now, Link: template.HTML(link), Body: template.HTML(withAges(main, now)),
		Live: "live/" + p.address(), Rev: v.rev}) // a browser that went away is nobody's news
}

// stream sends what changes, as server-sent events: each has the revision as its id, so that a browser that lost the
// stream goes on where it was.
func (s *server) stream(w http.ResponseWriter, r *http.Request, p place) {
	if s.streams.Add(1) > maxStreams {
		s.streams.Add(-1)
		http.Error(w, errTooManyPages.Error(), http.StatusServiceUnavailable)
		return
	}
	defer s.streams.Add(-1)
	rev, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64)
	if err != nil {
		rev, _ = strconv.ParseUint(r.URL.Query().Get("rev"), 10, 64) // without one, all is sent
	}
	detach, ok := s.hub.attach(p)
	if !ok { // forgotten meanwhile
		if _, err := s.hub.look(r.Context(), p); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		if detach, ok = s.hub.attach(p); !ok {
			return
		}
	}
	defer detach()
	s.hub.wakeUp()
	w.Header().Set("Content-Type", "text/event-stream")
	s.send(w, r, p, rev)
}

// send writes what changes until either side ends.
func (s *server) send(w http.ResponseWriter, r *http.Request, p place, rev uint64) {
	ctl := http.NewResponseController(w)
	say := func(text string) bool {
		if ctl.SetWriteDeadline(time.Now().Add(writeTime)) != nil {
			return false
		}
		_, err := io.WriteString(w, text)
		return err == nil && ctl.Flush() == nil
	}
	if ctl.SetReadDeadline(time.Time{}) != nil || !say("retry: 1000\n\n") {
		return
	}
	for {
		list, now, next := s.hub.since(p, rev)
		rev = now
		if len(list) > 0 {
			data, err := json.Marshal(list)
			if err != nil || !say(fmt.Sprintf("id: %d\ndata: %s\n\n", rev, data)) {
				return
			}
		}
		select {
		case <-s.ended:
			say("event: end\ndata: ended\n\n")
			return
		case <-r.Context().Done():
			return
		case <-next:
		case <-time.After(aliveTime):
			if !say(": alive\n\n") {
				return
			}
		}
	}
}
