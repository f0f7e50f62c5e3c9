"""Zips to deploy on the rig: a small function with many faces, and the real worker."""

import base64
import io
import json
import zipfile
from pathlib import Path

import boto3
import botocore.config
import numpy as np

from serverless_gc.deploy.contents import read_cloudpickle

ROOT = Path(__file__).parents[2]

SMALL = """
import json, os, signal, sys, time

print("module loaded")
calls = 0

def handler(event, context):
    global calls
    calls += 1
    act = event.get("act", "tell") if isinstance(event, dict) else "echo"
    print("asked to", act)
    if act == "raise":
        raise ArithmeticError("on purpose")
    if act == "sleep":
        time.sleep(event["seconds"])
    if act == "exit":
        sys.exit(3)
    if act == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if act == "take":
        taken = bytearray(event["megabytes"] * 2**20)
        taken[::4096] = bytes(len(taken[::4096])).replace(b"\\0", b"x")
        time.sleep(event.get("seconds", 0))
        return len(taken)
    if act == "fill":
        return "x" * event["size"]
    if act == "environ":
        return dict(os.environ)
    if act == "count":
        import boto3
        s3 = boto3.client("s3")
        number = len(s3.list_objects_v2(Bucket=event["bucket"]).get("Contents", []))
        s3.put_object(Bucket=event["bucket"], Key=f"{number}", Body=b"")
        if number < event["fail"]:
            raise RuntimeError(f"attempt {number}")
        return number
    if act == "echo":
        return event
    return {"calls": calls, "pid": os.getpid(), "version": context.function_version,
            "arn": context.invoked_function_arn, "left_ms": context.get_remaining_time_in_millis()}
"""


def make_zip(files):
    """A zip of these names and contents."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return content.getvalue()


class Invoked:
    """An answer of Invoke, read."""

    def __init__(self, answer):
        self.status = answer["StatusCode"]
        self.error = answer.get("FunctionError")
        self.raw = answer["Payload"].read()
        self.value = json.loads(self.raw) if self.raw else None
        self.log = base64.b64decode(answer.get("LogResult", "")).decode()


class Sdk:
    """boto3's clients for whatever the environment points to, closed together; nothing is retried."""

    def __init__(self):
        self._clients = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for client in self._clients.values():
            client.close()

    def __getattr__(self, service):
        return self.client(service)

    def client(self, service):
        if service not in self._clients:
            config = botocore.config.Config(retries={"total_max_attempts": 1}, max_pool_connections=20)
            self._clients[service] = boto3.client(service, config=config)
        return self._clients[service]

    @property
    def functions(self):
        return self.client("lambda")

    def role(self, name="any-role"):
        try:
            return self.iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")["Role"]["Arn"]
        except self.iam.exceptions.EntityAlreadyExistsException:
            return self.iam.get_role(RoleName=name)["Role"]["Arn"]

    def deploy(self, name, code=None, **options):
        """Create a function; ``code`` is a zip, by default that of the small one."""
        given = {"Runtime": "python3.13", "Handler": "app.handler", "Timeout": 5, "MemorySize": 256, **options}
        code = make_zip({"app.py": SMALL}) if code is None else code
        return self.functions.create_function(
            FunctionName=name, Role=self.role(), Code=code if isinstance(code, dict) else {"ZipFile": code}, **given
        )

    def invoke(self, name, event=None, **options):
        payload = json.dumps(event if event is not None else {})
        return Invoked(self.functions.invoke(FunctionName=name, Payload=payload, **options))


def worker_zip():
    """The real worker, with NumPy and cloudpickle of this interpreter: the shape of the bundle that is deployed."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.write(ROOT / "lambda" / "handler.py", "handler.py")
        package = ROOT / "serverless_gc"
        for path in [package / "__init__.py", *package.glob("worker/*.py"), *package.glob("wire/*.py")]:
            archive.write(path, path.relative_to(ROOT))
        for name, data in read_cloudpickle().files.items():
            archive.writestr(name, data)
        site = Path(np.__file__).parents[1]
        for path in sorted([*site.glob("numpy/**/*"), *site.glob("numpy.libs/*")]):
            if path.suffix in {".pyi", ".h", ".a"} or {"tests", "f2py", "include"} & set(path.parts):
                continue
            if path.suffix == ".pyc":
                # As the bundle's: bytecode that is not compared with the source, whose time unpacking changes.
                code = path.read_bytes()
                archive.writestr(str(path.relative_to(site)), code[:4] + bytes([1, 0, 0, 0]) + bytes(8) + code[16:])
            elif path.is_file():
                archive.write(path, path.relative_to(site))
    return content.getvalue()
