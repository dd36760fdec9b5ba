// A real API server for custom resources: Kubernetes' own apiextensions-apiserver over an embedded
// etcd, as one process on 127.0.0.1. Without pods, core resources, admission webhooks or operators.
//
//	kubernetes --folder F --port P --etcd-port E --etcd-peer-port Q
//
//	F/tokens.csv   TOKEN,USER,UID[,"GROUP"]; the group system:masters may do everything
//	F/rules.json   {"USER": [{"apiGroups", "resources", "verbs", "namespace"}]}, "*" for all of them
//	F/apiserver.crt, apiserver.key   made here: the server's own certificate, with its authority
//	F/clients.crt, us.crt, us.key    made here: a client certificate of the user "us"
//
// Authentication is Kubernetes' own (static tokens, client certificates), and so are the words of
// each refusal. The rules are read anew at each request, and matched here as RBAC matches them.
package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	crypto "crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

var (
	folder   = flag.String("folder", "", "data of etcd, and the server's own certificate")
	port     = flag.Int("port", 0, "of the API server")
	etcdPort = flag.Int("etcd-port", 0, "of etcd")
	peerPort = flag.Int("etcd-peer-port", 0, "of etcd, for others, which there are none of")
)

type rule struct {
	Groups    []string `json:"apiGroups"`
	Resources []string `json:"resources"`
	Verbs     []string `json:"verbs"`
	Namespace string   `json:"namespace"`
}

func has(list []string, value string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, value)
}

func authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if slices.Contains(a.GetUser().GetGroups(), user.SystemPrivilegedGroup) {
		return authorizer.DecisionAllow, "", nil
	}
	text, err := os.ReadFile(filepath.Join(*folder, "rules.json"))
	if err != nil {
		return authorizer.DecisionDeny, "", err
	}
	all := map[string][]rule{}
	if err := json.Unmarshal(text, &all); err != nil {
		return authorizer.DecisionDeny, "", err
	}
	resource := a.GetResource()
	if a.GetSubresource() != "" {
		resource += "/" + a.GetSubresource()
	}
	for _, each := range all[a.GetUser().GetName()] {
		here := each.Namespace == "" || each.Namespace == a.GetNamespace()
		known := !a.IsResourceRequest() || has(each.Groups, a.GetAPIGroup()) && has(each.Resources, resource)
		if here && known && has(each.Verbs, a.GetVerb()) {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionDeny, "", nil
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// clientCertificate makes an authority and a certificate of the user "us"; it returns the former.
func clientCertificate() string {
	place := func(name string) string { return filepath.Join(*folder, name) }
	signer, err := rsa.GenerateKey(rand.Reader, 2048)
	must(err)
	authority, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "clients"}, signer)
	must(err)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(err)
	template := crypto.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "us"},
		NotBefore:    authority.NotBefore,
		NotAfter:     authority.NotAfter,
		KeyUsage:     crypto.KeyUsageDigitalSignature,
		ExtKeyUsage:  []crypto.ExtKeyUsage{crypto.ExtKeyUsageClientAuth},
	}
	der, err := crypto.CreateCertificate(rand.Reader, &template, authority, key.Public(), signer)
	must(err)
	pemKey, err := keyutil.MarshalPrivateKeyToPEM(key)
	must(err)
	must(keyutil.WriteKey(place("us.key"), pemKey))
	must(cert.WriteCert(place("us.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	must(cert.WriteCert(place("clients.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Raw})))
	return place("clients.crt")
}

func local(port int) url.URL {
	return url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}
}

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	store := embed.NewConfig()
	store.Dir = filepath.Join(*folder, "etcd")
	store.LogLevel = "error"
	client, peer := local(*etcdPort), local(*peerPort)
	store.ListenClientUrls, store.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	store.ListenPeerUrls, store.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	store.InitialCluster = store.InitialClusterFromName(store.Name)
	etcd, err := embed.StartEtcd(store)
	must(err)
	defer etcd.Close()
	<-etcd.Server.ReadyNotify()

	// The core API is not there: this leads nowhere.
	nowhere := filepath.Join(*folder, "nowhere")
	must(os.WriteFile(nowhere, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"x",
"clusters":[{"name":"x","cluster":{"server":"http://127.0.0.1:1"}}],
"contexts":[{"name":"x","context":{"cluster":"x","user":""}}]}`), 0o600))

	given := options.NewCustomResourceDefinitionsServerOptions(os.Stdout, os.Stderr)
	recommended := given.RecommendedOptions
	recommended.Etcd.StorageConfig.Transport.ServerList = []string{client.String()}
	recommended.SecureServing.BindAddress = net.ParseIP("127.0.0.1")
	recommended.SecureServing.BindPort = *port
	recommended.SecureServing.ServerCert.CertDirectory = *folder
	recommended.CoreAPI.CoreAPIKubeconfigPath = nowhere
	recommended.Authentication = nil
	recommended.Authorization = nil
	recommended.Admission = nil
	recommended.Features.EnablePriorityAndFairness = false
	must(given.Complete())
	config, err := given.Config()
	must(err)

	known, err := tokenfile.NewCSV(filepath.Join(*folder, "tokens.csv"))
	must(err)
	ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", clientCertificate())
	must(err)
	generic := config.GenericConfig
	generic.SecureServing.ClientCA = ca
	generic.Authentication.Authenticator = group.NewAuthenticatedGroupAdder(union.New(
		x509.NewDynamic(ca.VerifyOptions, x509.CommonNameUserConversion),
		bearertoken.New(known),
	))
	generic.Authorization.Authorizer = authorizer.AuthorizerFunc(authorize)

	server, err := config.Complete().New(genericapiserver.NewEmptyDelegate())
	must(err)
	must(server.GenericAPIServer.PrepareRun().RunWithContext(ctx))
}
