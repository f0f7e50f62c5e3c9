"""The worker deployed on a rig, with the face of `serverless_gc.testing.offline_aws.OfflineAws`."""

import contextlib
import dataclasses

from rig_functions import Sdk, worker_zip

BUCKET = "trials"
FUNCTION = "trials-worker"
_ALL_FURTHER = 1000  # what "all further requests" comes to


@dataclasses.dataclass(frozen=True)
class RigAccount:
    """A rig with a bucket and the deployed worker; tests written for the light endpoint find the same names here."""

    rig: object
    bucket: str = BUCKET
    function: str = FUNCTION

    @property
    def s3_url(self):
        return self.rig.url

    @property
    def lambda_url(self):
        return self.rig.url

    @property
    def environment(self):
        names = {"SERVERLESS_GC_BUCKET": self.bucket, "SERVERLESS_GC_FUNCTION": self.function}
        return {**self.rig.environment(), **names}

    @contextlib.contextmanager
    def activated(self, **further):
        with self.rig.activated(**{**self.environment, **further}):
            yield

    def counts(self):
        return self.rig.admin.counts(self.function)

    def script(self, *steps):
        numbered = {}
        for step in steps:
            for _ in range(step.times or _ALL_FURTHER):
                numbered[len(numbered) + 1] = step
        self.rig.admin.set_faults(self.function, numbered)

    def kill(self):
        """End the function's environments, those at work too."""
        return self.rig.admin.kill(self.function)


def deploy(rig, code=None):
    """Deploy the worker as is done for real, through S3."""
    account = RigAccount(rig)
    with account.activated(), Sdk() as sdk:
        sdk.s3.create_bucket(Bucket=BUCKET)
        sdk.s3.put_object(Bucket=BUCKET, Key="code/worker.zip", Body=code or worker_zip())
        where = {"S3Bucket": BUCKET, "S3Key": "code/worker.zip"}
        sdk.deploy(FUNCTION, where, Handler="handler.handler", MemorySize=1769, Timeout=30)
    return account
