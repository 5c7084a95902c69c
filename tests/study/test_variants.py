"""Networks that sessions measure beside those of the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from hios.errors import HiosError
from hios.formats.config import BatchStudy, ImageStudy, Study, TransformerStudy
from hios.pipeline.config import without_files
from hios.study import sessions


def _settings(**study: Any) -> Any:
    data = {"models": {"squeezenet": {}}, "algorithms": {"sequential": {}}, "devices": [1, 2], "study": study}
    return without_files(data, "config.yaml")


def test_sizes_by_scale() -> None:
    """Those of the papers with scale full, smaller ones with quick; or what the configuration says."""
    quick, full = (sessions.variant_networks(Study(scale=scale)) for scale in ("quick", "full"))
    assert sorted(name for name in full if "/images/" in name) == [
        *(f"study/images/inception_v3-{size}" for size in (1024, 299, 512)),
        *(f"study/images/nasnet_large-{size}" for size in (331, 512)),
    ]
    assert sorted(name for name in quick if "/images/" in name) == [
        f"study/images/inception_v3-{size}" for size in (149, 299)
    ]
    alone = sessions.profiled_alone(Study(scale="quick"))
    assert alone == [f"study/profiles/inception_v3-149/{name}" for name in ("ios", "hios-mr", "hios-lp")]
    assert len(sessions.profiled_alone(Study(scale="full"))) == 5 * 3
    batch = quick["study/batches/inception_v3-b4"]
    assert (batch.batch_size, batch.image_size) == (4, 149)
    assert full["study/batches/inception_v3-b4"].image_size is None
    assert "study/batches/inception_v3-b16" in full
    assert quick["study/transformers/t5-2-layers"].options == {"layers": 2, "sequence_length": 32}
    assert full["study/transformers/t5"].options is None
    own = Study(
        images=ImageStudy(sizes={"squeezenet": (64,)}),
        batches=BatchStudy(sizes={"squeezenet": (2,)}, image_size=64),
        transformers=TransformerStudy(models=("squeezenet",)),
    )
    chosen = sessions.variant_networks(own)
    assert list(chosen) == [
        "study/images/squeezenet-64",
        "study/batches/squeezenet-b2",
        "study/transformers/squeezenet",
    ]
    assert (chosen["study/batches/squeezenet-b2"].image_size, chosen["study/images/squeezenet-64"].image_size) == (
        64,
        64,
    )
    assert chosen["study/transformers/squeezenet"].units == "operator"


def test_schedules_by_session() -> None:
    """Algorithms for one device run on one, others on the most; of batches also the schedules for the others."""
    settings = _settings(batches={"sizes": {"squeezenet": [1, 4, 16]}})
    of_hios = ["hios-mr-inter-2", "hios-mr-2", "hios-lp-inter-2", "hios-lp-2"]
    assert sessions.competitors(settings, "images") == ["sequential-1", "ios-1", *of_hios]
    assert sessions.competitors(settings, "transformers") == ["sequential-1", "nimble-1", "opara-1"]
    label = "study/batches/squeezenet-b4"
    assert sessions.retargeted(settings.study, label) == ["ios-for-b1", "ios-for-b16"]
    assert sessions.retargeted(settings.study, "study/images/inception_v3-299") == []
    assert [sessions.session_of(name) for name in (label, "squeezenet")] == ["batches", None]
    assert {"squeezenet", label} <= sessions.with_variants(settings).models.keys()
    assert "squeezenet" in settings.models
    assert label not in settings.models


@pytest.mark.parametrize(
    ("study", "message"),
    [
        ({"images": {"sizes": {"../x": [64]}}}, r"study\.images\.sizes"),
        ({"images": {"sizes": {"x": []}}}, r"study\.images\.sizes\.x"),
        ({"batches": {"sizes": {"x": [2, 2]}}}, r"study\.batches\.sizes\.x: found \[2, 2\]"),
        ({"transformers": {"models": []}}, r"study\.transformers\.models"),
    ],
)
def test_wrong_sizes_are_refused(study: dict[str, Any], message: str) -> None:
    """With file and field."""
    with pytest.raises(HiosError, match=rf"config\.yaml: .*{message}"):
        _settings(**study)
