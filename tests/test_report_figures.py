"""Figures say what the numbers say, as real files, in colours that stay apart. All numbers here are made up."""

import io
import subprocess
import sys

import matplotlib
import matplotlib.image
import matplotlib.patches
import matplotlib.text
import numpy as np
import pytest

from vsr_jax import report
from vsr_jax.report import colours
from vsr_jax.report.figures import _spread, png_bytes, svg_bytes


@pytest.fixture
def flow():
    return report.Flow("Base", "Math-RLVR", [[4, 6, 0], [9, 31, 3], [0, 0, 11]], "Instructions")


@pytest.fixture
def curves():
    ks = [1, 2, 4, 8]
    return {
        "Math": [
            report.Curve("Base", ks, [0.2, 0.3, 0.5, 0.7], [0.1, 0.2, 0.4, 0.6], [0.3, 0.4, 0.6, 0.8]),
            report.Curve("IF-RLVR", ks, [0.1, 0.1, 0.2, 0.3]),
        ]
    }


@pytest.fixture
def run():
    groups = {"all_wrong": [0.5, 0.2], "mixed": [0.4, 0.5], "all_correct": [0.1, 0.3]}
    openings = {"DRI": [0.4, 0.9], "DAI": [0.3, 0.0], "CSI": [0.0, 0.0], "Other": [0.3, 0.1]}
    return report.TrainingRun("Math-RLVR", [1, 2], [0.2, 0.6], groups, openings)


@pytest.fixture
def bars():
    return {"Math": {"Base": {"DRI": 0.42, "DAI": 0.25, "Other": 0.33}, "IF-RLVR": {"DAI": 0.9, "Other": 0.1}}}


def texts(figure):
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text) if text.get_text() and text.get_visible()]


class TestFigures:
    def test_flow_shows_every_margin(self, flow):
        shown = texts(report.bucket_flow([flow]))
        for label in (
            "All correct\n17% (11)", "Mixed\n67% (43)", "All wrong\n16% (10)",
            "All correct\n22% (14)", "Mixed\n58% (37)", "All wrong\n20% (13)",
            "Base", "Math-RLVR", "Instructions",
        ):  # fmt: skip
            assert label in shown

    def test_flow_ribbons_carry_the_shares(self, flow):
        axis = report.bucket_flow([flow]).axes[0]
        ribbons = [patch for patch in axis.patches if isinstance(patch, matplotlib.patches.PathPatch)]
        heights = sorted(float(patch.get_path().vertices[0, 1] - patch.get_path().vertices[7, 1]) for patch in ribbons)
        np.testing.assert_allclose(heights, np.array([3, 4, 6, 9, 11, 31]) / 64)

    def test_curves_hold_the_values_given(self, curves):
        axis = report.best_at_k_curves(curves).axes[0]
        lines = {line.get_color(): line.get_ydata().tolist() for line in axis.lines}
        styles = report.policy_styles(["Base", "IF-RLVR"])
        assert lines[styles["Base"].colour] == [0.2, 0.3, 0.5, 0.7]
        assert lines[styles["IF-RLVR"].colour] == [0.1, 0.1, 0.2, 0.3]
        assert len(axis.collections) == 1  # one band: the other curve has no interval
        assert [label.get_text() for label in axis.get_xticklabels()] == ["1", "2", "4", "8"]

    def test_bars_fill_the_width(self, bars):
        axis = report.opening_bars(bars).axes[0]
        widths = [patch.get_width() for patch in axis.patches]
        assert sum(widths) == pytest.approx(2)
        assert {"42%", "25%", "33%", "90%", "10%"} <= set(texts(axis.figure))

    def test_training_has_a_column_a_run(self, run):
        figure = report.training_curves([run, run])
        assert len(figure.axes) == 6
        assert figure.axes[0].lines[0].get_ydata().tolist() == [0.2, 0.6]
        assert {"Mean reward", "Groups of samples", "Openings", "Mixed", "Other"} <= set(texts(figure))

    @pytest.mark.parametrize("which", ["flow", "curves", "bars", "run"])
    def test_saved_as_real_png_and_svg(self, which, request, tmp_path):
        value = request.getfixturevalue(which)
        figure = {
            "flow": lambda: report.bucket_flow([value] * 3),
            "curves": lambda: report.best_at_k_curves(value),
            "bars": lambda: report.opening_bars(value),
            "run": lambda: report.training_curves([value]),
        }[which]()
        png, svg = report.save(figure, tmp_path / "deep" / which)
        assert (png.name, svg.name) == (f"{which}.png", f"{which}.svg")
        pixels = matplotlib.image.imread(io.BytesIO(png.read_bytes()))
        assert pixels.shape[0] > 200
        assert pixels.shape[1] > 400
        assert pixels[..., :3].std() > 0.05
        assert svg.read_text().lstrip().startswith("<?xml")
        assert "</svg>" in svg.read_text()
        assert sorted(path.name for path in png.parent.iterdir()) == [png.name, svg.name]

    def test_same_numbers_same_bytes(self, flow):
        assert png_bytes(report.bucket_flow([flow])) == png_bytes(report.bucket_flow([flow]))
        assert svg_bytes(report.bucket_flow([flow])) == svg_bytes(report.bucket_flow([flow]))

    def test_settings_are_left_alone_and_pyplot_unused(self, flow, tmp_path):
        before = dict(matplotlib.rcParams)
        report.save(report.bucket_flow([flow]), tmp_path / "flow")
        assert dict(matplotlib.rcParams) == before
        code = "import sys, vsr_jax.report; sys.exit(bool({'matplotlib.pyplot', 'jax', 'torch'} & set(sys.modules)))"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

    @pytest.mark.parametrize(
        ("call", "complaint"),
        [
            (lambda: report.bucket_flow([]), "at least one flow"),
            (lambda: report.bucket_flow([report.Flow("a", "b", np.zeros((3, 3)))]), "'a' to 'b'"),
            (lambda: report.bucket_flow([report.Flow("a", "b", [[1, 2], [3, 4]])]), "3 x 3"),
            (lambda: report.best_at_k_curves({}), "at least one curve"),
            (lambda: report.best_at_k_curves({"m": [report.Curve("a", [1, 2], [0.5])]}), "'a'.*same length"),
            (lambda: report.opening_bars({"m": {"a": {"DRI": 0.5}}}), "'a' in 'm' add up to 0.5"),
            (lambda: report.training_curves([]), "at least one run"),
            (lambda: report.training_curves([report.TrainingRun("r", [1], [0.1, 0.2], {}, {})]), "reward has 2 values"),
        ],
    )
    def test_refuses(self, call, complaint):
        with pytest.raises(ValueError, match=complaint):
            call()

    def test_labels_are_pushed_apart_and_stay_near(self):
        placed = _spread(np.array([0.9, 0.89, 0.5, 0.0]), 0.1)
        assert (np.diff(placed) <= -0.1 + 1e-12).all()
        np.testing.assert_allclose(placed, [0.9, 0.8, 0.5, 0.0])
        assert _spread(np.array([0.05, 0.02, 0.0]), 0.1).min() == 0.0


class TestColours:
    # Machado, Oliveira and Fernandes (2009), full protanopia, deuteranopia and tritanopia, on linear RGB.
    DEFICIENCIES = (
        np.eye(3),
        np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
        np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
        np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
    )

    def lab(self, colour, deficiency):
        rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        seen = np.clip(deficiency @ linear, 0, 1)
        to_xyz = np.array(
            [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
        )
        scaled = to_xyz @ seen / np.array([0.95047, 1.0, 1.08883])
        f = np.where(scaled > 0.008856, np.cbrt(scaled), 7.787 * scaled + 16 / 116)
        return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])

    @pytest.mark.parametrize(
        "palette",
        [
            list(colours.BUCKET_COLOURS.values())[:3],
            list(colours.OPENING_COLOURS.values()),
            [style.colour for style in report.policy_styles(["Base", "Math-RLVR", "IF-RLVR"]).values()],
            [style.colour for style in report.policy_styles(["Base", "IF-RLVR", "IF->Math"]).values()],
        ],
    )
    def test_stay_apart_for_all_readers(self, palette):
        for deficiency in self.DEFICIENCIES:
            seen = [self.lab(colour, deficiency) for colour in palette]
            distances = [np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i]]
            assert min(distances) > 18

    def test_a_policy_keeps_its_colour(self):
        alone, among = report.policy_styles(["IF-RLVR"]), report.policy_styles(["x", "Base", "IF-RLVR", "y"])
        assert alone["IF-RLVR"].colour == among["IF-RLVR"].colour
        assert (
            report.policy_styles(["IF->Math"])["IF->Math"].colour == report.policy_styles(["IF→Math"])["IF→Math"].colour
        )

    def test_many_policies_have_different_looks(self):
        styles = report.policy_styles([f"seed {i}" for i in range(8)])
        assert len({(style.colour, style.dash) for style in styles.values()}) == 8
