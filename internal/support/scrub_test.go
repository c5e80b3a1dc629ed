package support

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Whatever form a secret has that another program wrote, it is hidden; what is around it stays. // I25
func TestScrub(t *testing.T) {
	const canary = "Canary4711"
	for _, text := range []string{
		"login to https://root:" + canary + "@192.0.2.1/redfish failed",
		"login to https://root:" + canary + "/%40@x@192.0.2.1/redfish failed",
		"password=" + canary + " failed", "Password: \"" + canary + " " + canary + "\" failed", "passwd='" + canary + "' failed",
		"BMC_PASSWORD=" + canary + ", failed", "bearerToken: " + canary + "; failed", "api_key = " + canary + "\nfailed",
		"Authorization: Basic " + canary + "\nfailed", "authorization: Digest username=x, response=" + canary + "\nfailed", "X-Auth-Token: " + canary + "\nfailed",
		"sent Bearer " + canary + "aB1= failed", "sent eyJhbGciOiJS." + canary + "." + canary + " failed",
		"-----BEGIN EC PRIVATE KEY-----\n" + canary + "\n-----END EC PRIVATE KEY-----\nfailed",
		"failed -----BEGIN PRIVATE KEY-----\n" + canary,
		"client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQo" + canary + " failed",
		`{"password":"` + canary + `","x":"failed"}`, `{"token":4711` + `,"x":"failed"}`, `{"m":"-----BEGIN PRIVATE KEY-----\n` + canary + `\n-----END PRIVATE KEY-----","x":"failed"}`,
		`{"m":"it said {\"password\":\"` + canary + `\",\"x\":1}, and failed"}`, `{"m":"{\"password\": \"a\\\"` + canary + `\"} failed"}`, `{"m":"{\"token\":4711, failed}"}`,
		`{"m":"{\"n\":\"{\\\"token\\\":\\\"` + canary + `\\\"}\"} failed"}`, `{"m":"Authorization: Digest username=\"x\", response=\"` + canary + `\"","x":"failed"}`,
		"Authorization: Digest username=\"x\", response=\"" + canary + "\"\nfailed", `{"m":"{\"Authorization\":\"Basic ` + canary + `\"}","x":"failed"}`,
		"failed: {\"password\":\"" + canary, "failed: {\\\"password\\\":\\\"" + canary, "failed: password='" + canary,
		"ran fence_x --password " + canary + " --verbose and failed", "AWS_SECRET_ACCESS_KEY=" + canary + " failed", "private-key: " + canary + "\nfailed",
		"HTTPS_PROXY=root:" + canary + "@192.0.2.1:3128 failed", "HTTPS_PROXY=http://root:" + canary + "@192.0.2.1:3128 failed",
	} {
		got := string(Scrub([]byte(text)))
		assert.NotContains(t, got, canary, text)
		assert.NotContains(t, got, "4711", text)
		assert.Contains(t, got, "failed", text)
		assert.Contains(t, got, "[redacted]", text)
		assert.Equal(t, text[0] == '{', json.Valid([]byte(got)), "%s: what is JSON stays JSON", got)
	}
}

// What fenced writes itself is no secret, and stays as it is.
func TestScrubLeavesWhatIsNoSecret(t *testing.T) {
	for _, text := range []string{
		`{"reason":"SecretShared","message":"the Secret metal3/w-1 is also that of w-2","class":"person"}` + "\n",
		"hosts.d/a.yaml:3: hosts[0].bmc.passwordFile: /etc/x: permission denied\n", "it asks for basic authentication, not bearer credentials\n",
		`fenced_bmc_failures_total{device="ipmi://192.0.2.1:623",reason="BMCAuth"} 3` + "\n", "fencing token 7; user anna@example.com\n",
		"2026-11-24T02:31:36Z prod: anna@example.com held worker-3: new disk\n", `{"gates":[{"name":"host","pass":true,"value":"a \"b\" c"}]}` + "\n",
		"usage: fencectl --token-duration 720h, --password-file FILE\n",
		`"credential":"[redacted]" secret: '[redacted]'` + "\n",
	} {
		assert.Equal(t, text, string(Scrub([]byte(text))))
	}
	assert.Equal(t, "a \\u001b[2Jb\n", string(Scrub([]byte("a\t\x1b[2Jb\n"))), "a terminal obeys nothing in it")
}
