package gateway

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestForwardCarriesBothDirectionsAndHalfCloses(t *testing.T) {
	t.Parallel()
	server, entry := listen(t), listen(t)
	go func() {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		request, _ := io.ReadAll(conn) // ends when the client half-closes
		_, _ = conn.Write(append([]byte("got "), request...))
	}()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Forward(ctx, entry, server.Addr().String()) }()

	client, err := new(net.Dialer).DialContext(t.Context(), "tcp4", entry.Addr().String())
	require.NoError(t, err)
	_, err = client.Write([]byte("hello"))
	require.NoError(t, err)
	require.NoError(t, client.(*net.TCPConn).CloseWrite())
	answer, err := io.ReadAll(client)
	require.NoError(t, err)
	require.Equal(t, "got hello", string(answer))

	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

func TestForwardClosesWithoutListener(t *testing.T) {
	t.Parallel()
	gone := listen(t)
	require.NoError(t, gone.Close())
	entry := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() { _ = Forward(ctx, entry, gone.Addr().String()) }()
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp4", entry.Addr().String())
	require.NoError(t, err)
	answer, err := io.ReadAll(client)
	require.NoError(t, err)
	require.Empty(t, answer)
}
