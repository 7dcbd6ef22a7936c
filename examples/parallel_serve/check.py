"""A small load on the server: eight clients, 50 images each, one that leaves too soon; every answer is the right one, and the same by
one rank, two and four: check.py PROGRAM"""
import os, socket, struct, subprocess, sys, tempfile, threading, time

clients, images = 8, 50


def image(client, number):
    return [((client * 37 + number * 11 + i * 7) % 17) / 16 for i in range(64)]


def connect(path):
    for _ in range(3000):
        try:
            one = socket.socket(socket.AF_UNIX)
            one.settimeout(60)
            one.connect(path)
            return one
        except (FileNotFoundError, ConnectionRefusedError):
            one.close()
            time.sleep(0.01)
    raise TimeoutError(path)


def ask(path, client, answers):
    with connect(path) as one:
        one.sendall(b"".join(struct.pack("64f", *image(client, number)) for number in range(images)))
        got = b""
        while len(got) < images * 40:
            part = one.recv(65536)
            assert part, "the server closed the connection"
            got += part
        answers[client] = got


def load(ranks):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "socket")
        server = subprocess.Popen([sys.argv[1], "--socket", path, "--ranks", str(ranks), "--seconds", "100",
                                   "--requests", str(clients * images)], stdout=subprocess.PIPE, text=True)
        with connect(path) as rude:
            rude.sendall(b"\0" * 100)  # not even one image
        answers = {}
        threads = [threading.Thread(target=ask, args=(path, client, answers)) for client in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        out, _ = server.communicate(timeout=60)
        assert server.returncode == 0 and f"{clients * images} requests answered by {ranks} ranks" in out, out
        assert not os.path.exists(path)
        return answers


one = load(1)
assert len(one) == clients and len(set(one.values())) == clients
for ranks in (2, 4):
    assert load(ranks) == one, f"{ranks} ranks answer otherwise"
